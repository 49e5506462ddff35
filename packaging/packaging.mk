# What leaves this folder: installing, the tarball of a release, Debian packages. Included by the Makefile; the words of
# its first lines (PREFIX, LIBDIR, OUT, VERSION ...) hold here. docs/packaging.md says what each of it is for.
#
# Everything that is installed is installed by `make install` and removed by `make uninstall`; tests/install.sh compares.

.PHONY: install uninstall installcheck dist print-version

datadir := $(PREFIX)/share
cmakedir = $(LIBDIR)/cmake/cellar

# From LIBDIR up to PREFIX, so that what is installed can be moved; a LIBDIR elsewhere is named in full.
include_from_libdir = $(if $(filter $(PREFIX)/%,$(LIBDIR)),$(shell printf '%s' '$(patsubst $(PREFIX)/%,%,$(LIBDIR))' | \
	sed 's|[^/][^/]*|..|g')/include,$(PREFIX)/include)
pointer_bytes = $(shell echo __SIZEOF_POINTER__ | $(CC) $(CPPFLAGS) $(CFLAGS) -E -P -x c -)
# $(call fill_in,template,installed file): words between at signs become what they stand for.
fill_in = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
	-e 's|@SOVERSION@|$(SOVERSION)|' -e 's|@INCLUDE_FROM_LIBDIR@|$(include_from_libdir)|' \
	-e 's|@POINTER_BYTES@|$(pointer_bytes)|' $(1) >"$(DESTDIR)$(2)" && chmod 644 "$(DESTDIR)$(2)"

# What goes where: file and place, for install and uninstall alike.
installed = $(PREFIX)/bin/cellar $(PREFIX)/include/cellar.h $(PREFIX)/include/cellar.hpp $(LIBDIR)/libcellar.a \
	$(LIBDIR)/libcellar.so.$(VERSION) $(LIBDIR)/libcellar.so.$(SOVERSION) $(LIBDIR)/libcellar.so \
	$(LIBDIR)/pkgconfig/cellar.pc $(cmakedir)/cellarConfig.cmake $(cmakedir)/cellarConfigVersion.cmake \
	$(datadir)/bash-completion/completions/cellar \
	$(datadir)/zsh/site-functions/_cellar $(datadir)/fish/vendor_completions.d/cellar.fish

# Manual pages that are made: tools/make_manuals.sh.
.PHONY: manuals
manuals: $(OUT)/man/made
$(OUT)/man/made: $(program) docs/man/cellar.1 include/cellar.h tools/make_manuals.sh tools/header_pages.awk tools/help_pages.awk
	$(call say,MAN,$(OUT)/man)
	@OUT=$(OUT) VERSION=$(VERSION) EXEC="$(EXEC)" tools/make_manuals.sh
	@touch $@

install: all manuals
	for file in $(installed); do install -d "$(DESTDIR)$${file%/*}" || exit 1; done
	install -m 755 $(OUT)/cellar "$(DESTDIR)$(PREFIX)/bin/cellar"
	install -m 644 include/cellar.h include/cellar.hpp "$(DESTDIR)$(PREFIX)/include"
	install -m 644 $(OUT)/libcellar.a "$(DESTDIR)$(LIBDIR)/libcellar.a"
	install -m 755 $(OUT)/libcellar.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/libcellar.so.$(VERSION)"
	ln -sf libcellar.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/libcellar.so.$(SOVERSION)"
	ln -sf libcellar.so.$(SOVERSION) "$(DESTDIR)$(LIBDIR)/libcellar.so"
	$(call fill_in,packaging/cellar.pc.in,$(LIBDIR)/pkgconfig/cellar.pc)
	$(call fill_in,packaging/cellarConfig.cmake.in,$(cmakedir)/cellarConfig.cmake)
	$(call fill_in,packaging/cellarConfigVersion.cmake.in,$(cmakedir)/cellarConfigVersion.cmake)
	install -d "$(DESTDIR)$(datadir)/man/man1" "$(DESTDIR)$(datadir)/man/man3"
	install -m 644 $(OUT)/man/man1/*.1 "$(DESTDIR)$(datadir)/man/man1"
	install -m 644 $(OUT)/man/man3/*.3 "$(DESTDIR)$(datadir)/man/man3"
	install -m 644 packaging/completion/cellar.bash "$(DESTDIR)$(datadir)/bash-completion/completions/cellar"
	install -m 644 packaging/completion/_cellar "$(DESTDIR)$(datadir)/zsh/site-functions/_cellar"
	install -m 644 packaging/completion/cellar.fish "$(DESTDIR)$(datadir)/fish/vendor_completions.d/cellar.fish"

uninstall:
	for file in $(installed); do rm -f "$(DESTDIR)$$file"; done
	rm -f "$(DESTDIR)$(datadir)"/man/man1/cellar.1 "$(DESTDIR)$(datadir)"/man/man1/cellar-*.1 \
		"$(DESTDIR)$(datadir)"/man/man3/cellar.3 "$(DESTDIR)$(datadir)"/man/man3/cellar_*.3 \
		"$(DESTDIR)$(datadir)"/man/man3/CELLAR_*.3
	rmdir "$(DESTDIR)$(cmakedir)" 2>/dev/null || true

installcheck: all manuals
	@OUT=$(OUT) MAKE="$(MAKE)" CC="$(CC)" CXX="$(CXX)" SANITIZERS="$(SANITIZERS)" \
		tools/run_tests.sh tests/install.sh tests/completion.sh tests/manual.sh tests/dist.sh

# ---- the tarball of a release ----------------------------------------------------------------------

# The same bytes from the same files, wherever, whenever and by whomever: tools/make_dist.sh.
dist:
	@BUILD=$(BUILD) VERSION=$(VERSION) tools/make_dist.sh

print-version:
	@echo $(VERSION)
