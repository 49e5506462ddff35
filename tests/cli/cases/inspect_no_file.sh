cellar inspect
