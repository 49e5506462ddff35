cellar help version inspect
