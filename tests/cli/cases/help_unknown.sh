cellar help nothing
