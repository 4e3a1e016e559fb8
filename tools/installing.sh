#!/bin/sh
# Runs pip. Where that fails, its last line is seldom the reason: says what usually is.
"$@"
status=$?
if [ $status -ne 0 ] && [ $status -ne 130 ]; then
    echo "installing failed; pip's own words are above. Packages come from pip's index:" \
        "is there a network? Behind a proxy set https_proxy. Then run make again." >&2
fi
exit $status
