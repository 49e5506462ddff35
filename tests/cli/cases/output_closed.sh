cellar help >&-
