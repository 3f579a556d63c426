# The tests by layer; tests/LAYER/test_NAME.c tests LAYER/NAME.c.
policy_TESTS := addr server host chunks names yaml date charter rules decide shadow image policy span problem cidr verdict
ledger-client_TESTS := record emit count log fold
dns_TESTS := wire answer message way pin pin_read cache tunnel channel dot upstream resolve addrs svcb ask front front_reply front_tcp front_engine front_pending front_known share
proxy_TESTS := limit hello ja4 flight http http_body http_write refuse buf side watch pipes listen
sidecar_TESTS := own beneath change config config_dns parent disk source ipc compile main sockets rules open_table verb verbs admin recorder settings rules_route rules_differ warden
REPLAY_TESTS := test_tls test_http test_kept test_life test_bugs test_ends test_reload test_records test_told test_cells test_requests test_connect
REPLAY_TESTS += test_again
FAULT_TESTS := test_attack test_malloc
FUZZ_TARGETS := fuzz_charter fuzz_image fuzz_dns_query fuzz_dns_answer fuzz_hello fuzz_http fuzz_response fuzz_host fuzz_addr fuzz_yaml fuzz_record fuzz_opening
sidecar_TESTS += confine seccomp
proxy_TESTS += opening
sidecar_TESTS += engines health notify told admin_client
policy_TESTS += build
dns_TESTS += pin_book keep front_keep
sidecar_TESTS += admin_dns
FUZZ_TARGETS += fuzz_cache fuzz_pin fuzz_tunnel
REPLAY_TESTS += test_opening test_flood test_shown test_counts
