cellar --help
