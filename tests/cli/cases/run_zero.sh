# Nothing to write: the prompt alone, in full.
cellar run -q -n 0 -p 'Once upon a time'
