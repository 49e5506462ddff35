cellar ""
