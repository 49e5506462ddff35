cellar inspect none.gguf
