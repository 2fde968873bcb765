#!/bin/sh
# live.sh - the live page, against the real server with the demo model.
exec "${0%/*}/start.sh" live
