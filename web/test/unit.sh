#!/bin/sh
# unit.sh - arrays, colours, numbers, state: without a browser.
exec "${0%/*}/start.sh" unit
