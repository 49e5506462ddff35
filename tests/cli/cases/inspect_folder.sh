cellar inspect .
