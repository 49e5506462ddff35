cellar version now
