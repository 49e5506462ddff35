# What somebody typed is quoted without driving the terminal, and cut when it is endless.
cellar "$(printf '\033[31mred\007')"
cellar "$(printf '%0500d' 0)"
