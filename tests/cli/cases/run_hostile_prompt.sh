# Any bytes are a prompt; what comes back is UTF-8, with U+FFFD for what can never become a character.
printf '\377\376 \360\237\230\200 \300\200' >prompt
cellar run -q -n 0 -f prompt | od -An -tx1
