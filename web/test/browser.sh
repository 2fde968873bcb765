#!/bin/sh
# browser.sh - reports in a browser, with the network cut.
exec "${0%/*}/start.sh" browser
