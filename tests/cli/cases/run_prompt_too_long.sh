# Refused before anything is read: part of a prompt is not what was asked for.
cellar run -p 'One day there was a small fox in a large forest' -c 4
