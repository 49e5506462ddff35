cellar run --sede 5
