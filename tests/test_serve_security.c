/* test_serve_security.c - who may send requests: hosts, origins, tokens. */
#include "support.h"

#include "serve/server.h"

static void hosts(void **state)
{
    static const char *const names[]  = { "lamp.example" };
    const hl_host_rules      loopback = { .bound = "127.0.0.1", .names = names, .n_names = 1 };
    static const char *const good[]   = {
          "127.0.0.1",  "127.0.0.1:7700", "localhost",      "LocalHost:80",   "[::1]",
          "[::1]:7700", "lamp.example",   "LAMP.example:1", "127.9.9.9:7700",
    };
    static const char *const bad[] = {
        "",
        "evil.example",
        "evil.example:7700",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "localhost.",
        "local",
        "localhost:80a",
        "localhost:80 ",
        ":80",
        "[::1",
        "[::1]x",
        "::1",
        "user@localhost",
        "[]",
        "0.0.0.0",
        "2130706433",
        "0177.0.0.1",
        "lamp.example.evil",
        "localhost/",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!hl_host_is_allowed(&loopback, good[i]))
            fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hl_host_is_allowed(&loopback, bad[i]))
            fail_msg("%s is allowed", bad[i]);
    assert_false(hl_host_is_allowed(&loopback, NULL));
}

static void all_addresses(void **state)
{
    const hl_host_rules any = { .bound = "0.0.0.0", .any_address = true };
    char                longest[1024];

    (void)state;
    assert_true(hl_host_is_allowed(&any, "10.0.0.1:7700"));
    assert_true(hl_host_is_allowed(&any, "[fe80::1]"));
    assert_false(hl_host_is_allowed(&any, "evil.example"));
    assert_false(hl_host_is_allowed(&any, "10.0.0.1.evil.example"));
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_false(hl_host_is_allowed(&any, longest));
}

static void origins(void **state)
{
    (void)state;
    assert_true(hl_origin_is_allowed(NULL, "localhost:7700"));
    assert_true(hl_origin_is_allowed("http://localhost:7700", "localhost:7700"));
    assert_true(hl_origin_is_allowed("https://lamp.example", "lamp.example"));
    assert_false(hl_origin_is_allowed("http://localhost:7701", "localhost:7700"));
    assert_false(hl_origin_is_allowed("http://localhost", "localhost:7700"));
    assert_false(hl_origin_is_allowed("http://evil.example", "localhost:7700"));
    assert_false(hl_origin_is_allowed("null", "localhost:7700"));
    assert_false(hl_origin_is_allowed("", "localhost:7700"));
    assert_false(hl_origin_is_allowed("http://localhost:7700/", "localhost:7700"));
    assert_false(hl_origin_is_allowed("http://localhost:7700.evil.example", "localhost:7700"));
    assert_false(hl_origin_is_allowed("http://localhost:7700", NULL));
}

static void tokens(void **state)
{
    (void)state;
    assert_true(hl_token_is_right("Bearer secret", "secret"));
    assert_true(hl_token_is_right("bearer secret", "secret"));
    assert_false(hl_token_is_right(NULL, "secret"));
    assert_false(hl_token_is_right("", "secret"));
    assert_false(hl_token_is_right("Bearer ", "secret"));
    assert_false(hl_token_is_right("Bearer", "secret"));
    assert_false(hl_token_is_right("secret", "secret"));
    assert_false(hl_token_is_right("Bearer secre", "secret"));
    assert_false(hl_token_is_right("Bearer secrets", "secret"));
    assert_false(hl_token_is_right("Bearer Secret", "secret"));
    assert_false(hl_token_is_right("Bearer secret ", "secret"));
    assert_false(hl_token_is_right("Basic secret", "secret"));
    assert_false(hl_token_is_right("Bearer ", ""));
    assert_false(hl_token_is_right("Bearer secretsecret", "secret"));
}

static void loopback_addresses(void **state)
{
    (void)state;
    assert_true(hl_address_is_loopback("127.0.0.1"));
    assert_true(hl_address_is_loopback("127.255.0.3"));
    assert_true(hl_address_is_loopback("::1"));
    assert_false(hl_address_is_loopback("0.0.0.0"));
    assert_false(hl_address_is_loopback("::"));
    assert_false(hl_address_is_loopback("128.0.0.1"));
    assert_false(hl_address_is_loopback("::ffff:10.0.0.1"));
    assert_false(hl_address_is_loopback("localhost"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts),  cmocka_unit_test(all_addresses),      cmocka_unit_test(origins),
        cmocka_unit_test(tokens), cmocka_unit_test(loopback_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
