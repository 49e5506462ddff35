cellar run -n 20 >&-
