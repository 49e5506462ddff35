echo 'this is a letter, not a model' >letter.gguf
cellar inspect letter.gguf
