# What makes no sense is said before anything is opened; an address that cannot be had after.
cellar serve --port 70000
echo "code $?"
cellar serve --host no.such.host.invalid --port 0 2>/dev/null
echo "code $?"
cellar serve --api-key-file /dev/null --port 0
echo "code $?"
cellar serve -m missing.gguf
echo "code $?"
