#!/bin/sh
# start.sh NAME - run test/NAME.mjs, or say why that cannot be done here.
web=${0%/*}/..
if ! command -v node >/dev/null; then
    echo "1..0 # SKIP there is no node here"
elif [ ! -d "$web/node_modules/vite" ]; then
    echo "1..0 # SKIP npm could not install what web/package.json asks for"
else
    exec node "$web/test/$1.mjs"
fi
