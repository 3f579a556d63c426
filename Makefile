# penstock: one non-recursive Makefile.
#
#   make                   build/release/penstock
#   make check             unit, replay, fault and namespace tests (root)
#   make service          the systemd unit, run by a systemd (root)
#   make asan fuzz lint layers corpus demo install format clean
#   CC=clang  V=1  CONFIG=release|asan|fuzz  DESTDIR=  PREFIX=

.DEFAULT_GOAL := all
VERSION := $(shell cat VERSION)
CONFIG ?= release
PREFIX ?= /usr/local
DESTDIR ?=
CC ?= cc
B := build/$(CONFIG)
ifneq ($(notdir $(CC)),cc)
ifneq ($(notdir $(CC)),gcc)
B := build/$(CONFIG)-$(notdir $(CC))
endif
endif
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' $(1) $(2))

PKGS := libevent_core libevent_openssl openssl libcares yaml-0.1 libidn2 libpsl libsodium \
	jansson libseccomp libmnl
MSGPACK := $(shell pkg-config --exists msgpack-c && echo msgpack-c || echo msgpack)
# libnftables is opened where it is used (sidecar/rules.c), so that no role
# that reads outside bytes maps it.
CPPFLAGS += -D_GNU_SOURCE -DPENSTOCK_VERSION='"$(VERSION)"' -I. \
	$(shell pkg-config --cflags $(PKGS) $(MSGPACK))
WARN := -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wformat=2 \
	-Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
	-Wcast-qual -Wwrite-strings -Wundef -Wswitch -Werror=switch \
	-Werror=implicit-function-declaration -Werror=return-type
ifeq ($(WERROR),1)
WARN += -Werror
endif
HARDEN := -fstack-protector-strong -fstack-clash-protection -fcf-protection \
	-fPIE -fno-strict-overflow
HARDEN_CPP := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
LDHARDEN := -pie -Wl,-z,relro,-z,now,-z,noexecstack
CFLAGS_release := -O2 -g $(HARDEN)
CFLAGS_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer -fPIE
CFLAGS_fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS_asan := -fsanitize=address,undefined -pie
LDFLAGS_fuzz := -fsanitize=fuzzer,address,undefined
LDFLAGS_release := $(LDHARDEN)
ifeq ($(CONFIG),release)
CPPFLAGS += $(HARDEN_CPP)
endif
CFLAGS += -std=c11 $(WARN) $(CFLAGS_$(CONFIG))
LDFLAGS += $(LDFLAGS_$(CONFIG))
LDLIBS := $(shell pkg-config --libs $(PKGS) $(MSGPACK)) -ldl -lm

# ---- sources: one list for each layer, lowest first ----

LAYERS := policy ledger-client dns proxy sidecar

policy_SRC := span chunks host addr server verdict problem yaml date charter rules rules_options names cidr \
	shadow build \
	image policy qtype decide decide_question decide_nearest
ledger-client_SRC := clock log record emit count fold
dns_SRC := share wire answer svcb message pin pin_write pin_book cache tunnel channel trust dot upstream \
	ask resolve addrs way front front_reply front_known front_tunnel front_udp front_pending front_engine front_keep keep front_tcp
proxy_SRC := proxy limit buf side watch pipes listen conn name pinned weigh again account dial \
	tunnel relay end forward body \
	hello opening ja4 flight http http_body http_write refuse
sidecar_SRC := main figures flush config config_part config_dns settings role parent change child shared told \
	reload notify health beneath compile compile_role ipc sockets confine \
	seccomp resolver engine recorder open_table admin admin_dns admin_client warden rules \
	rules_text rules_differ rules_route rtnl own \
	verb verb_serve verb_check verb_explain verb_test verb_diff verb_rules \
	verb_status verb_pins verb_cache verb_tail verb_health verb_env verb_token verb_schema \
	source

# Unit tests: tests/LAYER/test_NAME.c, linked with its layer and lower ones.
include tests/tests.mk

define layer_rules
$(1)_OBJ := $$($(1)_SRC:%=$(B)/$(1)/%.o)
$(B)/$(1).a: $$($(1)_OBJ)
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach l,$(LAYERS),$(eval $(call layer_rules,$(l))))

AR_policy := $(B)/policy.a
AR_ledger-client := $(B)/ledger-client.a $(AR_policy)
AR_dns := $(B)/dns.a $(AR_ledger-client)
AR_proxy := $(B)/proxy.a $(AR_dns)
AR_sidecar := $(B)/sidecar.a $(AR_proxy)

.PHONY: all
all: $(B)/penstock

$(B)/penstock: $(B)/sidecar/main.o $(AR_sidecar)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(B)/sidecar/main.o $(AR_sidecar) $(LDLIBS)

$(B)/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# The schemas are part of the program (.incbin).
$(B)/sidecar/verb_schema.o: policy/penstock-policy.schema.json \
	sidecar/penstock.schema.json

# ---- tests ----

define unit_rules
$(B)/tests/$(1)/$(2): $(B)/tests/$(1)/$(2).o $$(AR_$(1))
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$< $$(AR_$(1)) $$(LDLIBS) -lcmocka
UNIT_BIN += $(B)/tests/$(1)/$(2)
endef
$(foreach l,$(LAYERS),$(foreach t,$($(l)_TESTS),\
	$(eval $(call unit_rules,$(l),test_$(t)))))
# Replay tests share a stage: client, origin and recorder in one thread, the
# engine in another.
define replay_rules
$(B)/tests/replay/$(1): $(B)/tests/replay/$(1).o $(B)/tests/replay/stage.o \
	$$(AR_proxy)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$(filter %.o,$$^) $$(AR_proxy) $$(LDLIBS) \
		-lcmocka -lpthread
UNIT_BIN += $(B)/tests/replay/$(1)
endef
$(foreach t,$(REPLAY_TESTS),$(eval $(call replay_rules,$(t))))
$(foreach t,$(FAULT_TESTS),$(eval $(call unit_rules,sidecar,../fault/$(t))))

$(B)/tests/replay/test_reload: LDFLAGS += -Wl,--wrap=time
$(B)/tests/replay/test_again: LDFLAGS += -Wl,--wrap=getsockname
$(B)/tests/replay/test_http: LDFLAGS += -Wl,--wrap=realloc
$(B)/tests/replay/test_records: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc
$(B)/tests/sidecar/../fault/test_malloc: LDFLAGS += \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

# As replay tests, with the engine's system calls under the test's hand.
$(eval $(call replay_rules,../fault/test_io))
$(B)/tests/replay/../fault/test_io: LDFLAGS += \
	-Wl,--wrap=recv,--wrap=send,--wrap=splice,--wrap=accept4,--wrap=socket \
	-Wl,--wrap=connect,--wrap=pipe2,--wrap=shutdown

$(B)/tests/proxy/test_listen: LDFLAGS += -Wl,--wrap=getsockopt \
	-Wl,--wrap=getsockname,--wrap=conn_new,--wrap=account_turned_away

$(B)/tests/dns/test_channel: LDFLAGS += -Wl,--wrap=event_new
$(B)/tests/dns/test_front_tcp: LDFLAGS += -Wl,--wrap=evbuffer_expand
$(B)/tests/dns/test_channel $(B)/tests/dns/test_upstream: \
	LDFLAGS += -Wl,--wrap=clock_mono_ms
$(B)/tests/dns/test_share: LDFLAGS += -Wl,--wrap=calloc
$(B)/tests/sidecar/test_recorder: LDFLAGS += -Wl,--wrap=write

.PHONY: unit manuals ids service check enforcement asan fuzz lint layers corpus demo install \
	format clean tools
unit: all $(UNIT_BIN)
	$(Q)tests/run-unit $(UNIT_BIN)

enforcement: all
	$(Q)tests/run-net

manuals: all
	$(Q)tests/check-manuals $(B)/penstock
	$(Q)tests/check-schemas $(B)/penstock
	$(Q)tests/check-env $(B)/penstock

ids:
	$(Q)tests/check-ids

service: all
	$(Q)tests/check-service $(B)/penstock

check: unit layers ids manuals service enforcement

asan:
	$(Q)$(MAKE) --no-print-directory CONFIG=asan all unit

define fuzz_rules
$(B)/tests/fuzz/$(1): $(B)/tests/fuzz/$(1).o $(AR_proxy)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$< $(AR_proxy) $$(LDLIBS)
FUZZ_BIN += $(B)/tests/fuzz/$(1)
endef
ifeq ($(CONFIG),fuzz)
$(foreach t,$(FUZZ_TARGETS),$(eval $(call fuzz_rules,$(t))))
endif
.PHONY: fuzz-run
fuzz:
	$(Q)$(MAKE) --no-print-directory CONFIG=fuzz CC=clang fuzz-run
fuzz-run: $(FUZZ_BIN)
	$(Q)tests/run-fuzz $(FUZZ_BIN)

CORPUS ?=
$(B)/tests/corpus/corpus: $(B)/tests/corpus/corpus.o $(AR_proxy)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(AR_proxy) $(LDLIBS)
corpus: $(B)/tests/corpus/corpus
	$(Q)test -n "$(CORPUS)" || { echo 'corpus: say where: make corpus CORPUS=DIR' >&2; exit 2; }
	$(Q)tests/run-corpus $(B)/tests/corpus/corpus "$(CORPUS)"

# The load generator of bench/relay.
$(B)/bench/load: bench/load.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $<

layers:
	$(Q)tests/check-layers

lint:
	$(Q)tests/run-lint

demo: all
	$(Q)tests/net/demo.py $(B)/penstock

# Changed lines only: what stands was laid out by hand.
format:
	$(Q)git clang-format --force --quiet HEAD -- '*.c' '*.h'

install: all
	$(Q)CONFIG=$(CONFIG) B=$(B) DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) \
		images/install.sh

clean:
	$(Q)rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)
