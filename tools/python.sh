#!/bin/sh
# Print the newest Python, 3.11 or later, that really runs and can make a virtual environment;
# otherwise say in one line what to do.
# A name on PATH is no proof: version managers leave names behind that fail when they are run.
found=
for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
    version=$("$name" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1)
print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
        command -v "$name"
        exit 0
    fi
    found=${found:-$version}
done
if [ -n "$found" ]; then
    echo "Python $found is here, but cannot make a virtual environment." \
        "On Debian and Ubuntu: sudo apt-get install python$found-venv" >&2
else
    echo "Shoal needs Python 3.11 or later, and none was found." \
        "On Debian and Ubuntu: sudo apt-get install python3 python3-venv" >&2
fi
exit 1
