cellar --version && cellar version
