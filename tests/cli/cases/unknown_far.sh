cellar bake
