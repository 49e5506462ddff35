cellar -n 10 run
