cellar inspect a.gguf b.gguf
