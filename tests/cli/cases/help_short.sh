cellar -h && cellar help
