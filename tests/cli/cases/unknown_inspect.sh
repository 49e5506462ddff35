cellar inspekt MODEL.gguf
