CELLAR_CPU=scalar cellar version
