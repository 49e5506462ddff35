/*
 * unit_shared_names.c: hashes, names and addresses of the shared store.
 *
 * SHA-256 and HMAC against the published examples (FIPS 180-4, RFC 4231), the slot of a key against that of the
 * specification of clusters. Names are computed once more here from the page that describes them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shared/shared_address.h"
#include "shared/shared_names.h"
#include "shared/shared_nodes.h"

static void expect_digits(const unsigned char *bytes, const char *digits)
{
    char text[2 * SHA256_BYTES + 1];
    for (unsigned i = 0; i < SHA256_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", (unsigned)bytes[i]);
    }
    assert_string_equal(text, digits);
}

static void hashes_are_those_of_the_standard(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "abc",
                                        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"};
    static const char *const sums[] = {
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"};
    unsigned char out[SHA256_BYTES];
    sha256 s;
    for (unsigned i = 0; i < 3; i++) {
        sha256_begin(&s);
        sha256_add(&s, texts[i], strlen(texts[i]));
        sha256_end(&s, out);
        expect_digits(out, sums[i]);
    }
    sha256_begin(&s);
    for (unsigned i = 0; i < 1000000; i += 125) { /* a million times "a", in uneven parts */
        char part[125];
        memset(part, 'a', sizeof part);
        sha256_add(&s, part, i % 2 ? 62 : 63);
        sha256_add(&s, part, i % 2 ? 63 : 62);
    }
    sha256_end(&s, out);
    expect_digits(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void expect_code(const void *key, size_t n_key, const void *text, size_t n, const char *code)
{
    hmac_key made;
    unsigned char out[SHA256_BYTES];
    hmac_key_make(&made, key, n_key);
    sha256 s = hmac_begin(&made);
    sha256_add(&s, text, n);
    hmac_end(&made, &s, out);
    expect_digits(out, code);
}

static void codes_are_those_of_the_standard(void **state)
{
    (void)state;
    unsigned char key[131], text[50];
    memset(key, 0x0b, 20);
    expect_code(key, 20, "Hi There", 8,
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    expect_code("Jefe", 4, "what do ya want for nothing?", 28,
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(text, 0xdd, sizeof text);
    expect_code(key, 20, text, sizeof text,
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    expect_code(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* As docs/shared-tier.md says, from the beginning. */
static void compute_name(const char *secret, const char *key, const cellar_token *tokens, size_t n,
                         shared_name *out)
{
    unsigned char bytes[SHA256_BYTES + 4 * SHARED_BLOCK];
    hmac_key made;
    hmac_key_make(&made, secret, strlen(secret));
    sha256 s = hmac_begin(&made);
    sha256_add(&s, "cellar shared 1\n@\0\0\0", 20);
    sha256_add(&s, key, strlen(key));
    hmac_end(&made, &s, out->bytes);
    for (size_t i = 0; i < n; i++) {
        memcpy(bytes, out->bytes, SHA256_BYTES);
        for (size_t t = 0; t < SHARED_BLOCK; t++) {
            for (unsigned b = 0; b < 4; b++) {
                bytes[SHA256_BYTES + 4 * t + b] =
                    (unsigned char)((uint32_t)tokens[i * SHARED_BLOCK + t] >> 8 * b);
            }
        }
        s = hmac_begin(&made);
        sha256_add(&s, bytes, sizeof bytes);
        hmac_end(&made, &s, out->bytes);
    }
}

static void names_are_those_of_the_page(void **state)
{
    (void)state;
    enum { N = 3 };
    cellar_token tokens[N * SHARED_BLOCK];
    shared_name root, names[N], expected;
    hmac_key secret;
    for (size_t i = 0; i < N * SHARED_BLOCK; i++) {
        tokens[i] = (cellar_token)(i * 70001);
    }
    hmac_key_make(&secret, "secret", 6);
    shared_names_root(&secret, "key", 3, &root);
    shared_names_chain(&secret, &root, tokens, N, names);
    for (size_t i = 0; i < N; i++) {
        compute_name("secret", "key", tokens, i + 1, &expected);
        assert_memory_equal(&names[i], &expected, sizeof expected);
    }
    char key[SHARED_KEY_BYTES];
    shared_names_write(&names[0], &names[2], key);
    assert_int_equal(strlen(key), SHARED_KEY_BYTES - 1);
    assert_memory_equal(key, "cellar:{", 8);
    assert_memory_equal(key + 24, "}:", 2);
    expect_digits(names[2].bytes, key + 26);
    /* Another secret, key or token is another name; later blocks know all tokens before them. */
    compute_name("secres", "key", tokens, N, &expected);
    assert_memory_not_equal(&names[2], &expected, sizeof expected);
    compute_name("secret", "kez", tokens, N, &expected);
    assert_memory_not_equal(&names[2], &expected, sizeof expected);
    tokens[0]++;
    compute_name("secret", "key", tokens, N, &expected);
    assert_memory_not_equal(&names[2], &expected, sizeof expected);
}

static void slots_are_those_of_clusters(void **state)
{
    (void)state;
    assert_int_equal(shared_nodes_slot("123456789", 9), 0x31c3);
    assert_int_equal(shared_nodes_slot("foo", 3), 12182);
    assert_int_equal(shared_nodes_slot("", 0), 0);
}

static void addresses_are_taken_apart(void **state)
{
    (void)state;
    shared_address a;
    cellar_error error;
    assert_int_equal(shared_address_read("redis://store", &a, &error), CELLAR_OK);
    assert_string_equal(a.host, "store");
    assert_int_equal(a.port, 6379);
    assert_false(a.has_tls);
    assert_string_equal(a.password, "");
    assert_int_equal(shared_address_read("rediss://us%65r:p%40s@s@[fe80::1]:6380/12", &a, &error),
                     CELLAR_OK);
    assert_string_equal(a.host, "fe80::1");
    assert_string_equal(a.user, "user");
    assert_string_equal(a.password, "p@s@s");
    assert_int_equal(a.port, 6380);
    assert_int_equal(a.database, 12);
    assert_true(a.has_tls);
    assert_int_equal(shared_address_read("redis://:pw@h/", &a, &error), CELLAR_OK);
    assert_string_equal(a.user, "");
    assert_string_equal(a.password, "pw");
    static const char *const wrong[] = {
        "http://h",        "redis:/h",          "redis://",         "redis://:6379",
        "redis://h:",      "redis://h:0",       "redis://h:65536",  "redis://h:1x",
        "redis://h/x",     "redis://h/9999999", "redis://[::1",     "redis://[]:1",
        "redis://u@h",     "redis://u:@h",      "redis://u:%4@h",   "redis://u:%zz@h",
        "redis://u:%00@h", "redis://h\n",       "redis://[::1]x:1", "redis://h:99999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (shared_address_read(wrong[i], &a, &error) != CELLAR_INVALID) {
            fail_msg("%s was taken", wrong[i]);
        }
        assert_null(strstr(error.message, "%zz")); /* what was wrong may be a password */
    }
    char longest[700] = "redis://";
    memset(longest + 8, 'h', 600);
    assert_int_equal(shared_address_read(longest, &a, &error), CELLAR_INVALID);
}

static void redirections_are_taken_apart(void **state)
{
    (void)state;
    shared_address a;
    assert_int_equal(shared_address_read("redis://store:1", &a, NULL), CELLAR_OK);
    assert_true(shared_address_move(&a, "10.0.0.1:6381", 13));
    assert_string_equal(a.host, "10.0.0.1");
    assert_int_equal(a.port, 6381);
    assert_true(shared_address_move(&a, "::1:7000", 8));
    assert_string_equal(a.host, "::1");
    assert_true(shared_address_move(&a, ":7001", 5)); /* the same host */
    assert_string_equal(a.host, "::1");
    assert_int_equal(a.port, 7001);
    static const char *const wrong[] = {"", ":", "h", "h:", "h:0", "h:65536", "h:-1", "h\r:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(shared_address_move(&a, wrong[i], strlen(wrong[i])));
        assert_int_equal(a.port, 7001);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_those_of_the_standard),
        cmocka_unit_test(codes_are_those_of_the_standard),
        cmocka_unit_test(names_are_those_of_the_page),
        cmocka_unit_test(slots_are_those_of_clusters),
        cmocka_unit_test(addresses_are_taken_apart),
        cmocka_unit_test(redirections_are_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
