# What is wrong came from the environment, so the message names the variable.
CELLAR_CPU=fast cellar run
