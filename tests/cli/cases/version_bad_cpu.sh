CELLAR_CPU=fast cellar version
