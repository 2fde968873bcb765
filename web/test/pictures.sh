#!/bin/sh
# pictures.sh - the README's pictures are of this page, and can be drawn.
exec "${0%/*}/start.sh" pictures
