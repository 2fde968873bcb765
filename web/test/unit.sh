#!/bin/sh
# unit.sh - arrays, colors, numbers, state: without a browser.
exec "${0%/*}/start.sh" unit
