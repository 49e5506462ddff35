cellar rnu
