cellar inspect --jsn a.gguf
