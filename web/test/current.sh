#!/bin/sh
# current.sh - is the built page, which is committed, what the source makes?
exec "${0%/*}/start.sh" current
