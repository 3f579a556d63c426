#!/bin/sh
# `make install`: the program, its manuals, schemas, examples and unit, below
# DESTDIR.  Everything that the images contain comes from here.
set -eu
root=$DESTDIR$PREFIX
install -D -m 0755 "$B/penstock" "$root/bin/penstock"
find . -name '*.[1-8]' -not -path './build/*' | while read -r m; do
	install -D -m 0644 "$m" "$root/share/man/man${m##*.}/${m##*/}"
done
for s in policy/penstock-policy.schema.json sidecar/penstock.schema.json; do
	install -D -m 0644 "$s" "$root/share/penstock/${s##*/}"
done
for x in images/example/*; do
	install -D -m 0644 "$x" "$root/share/doc/penstock/example/${x##*/}"
done
install -D -m 0644 LICENSE "$root/share/doc/penstock/LICENSE"
sed "s|@bindir@|$PREFIX/bin|" images/penstock.service.in > "$B/penstock.service"
install -D -m 0644 "$B/penstock.service" \
	"$root/lib/systemd/system/penstock.service"
