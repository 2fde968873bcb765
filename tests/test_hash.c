/* test_hash.c - XXH64 against the vectors of its reference implementation (the self test of
 * xxhsum), at once and in pieces. */
#include "support.h"

#include "base/hash.h"

enum { N_SANITY = 222 };
static const uint64_t prime = 2654435761U;

/* Makes the bytes that the reference self test hashes. */
static void sanity_bytes(uint8_t out[N_SANITY])
{
    uint64_t generator = prime;

    for (int i = 0; i < N_SANITY; i++) {
        out[i] = (uint8_t)(generator >> 56);
        generator *= 11400714785074694797U;
    }
}

static void the_published_vectors(void **state)
{
    (void)state;
    static const struct {
        size_t   n_bytes;
        bool     seeded;
        uint64_t hash;
    } cases[] = {
        { 0, false, 0xef46db3751d8e999 },  { 0, true, 0xac75fda2929b17ef },
        { 1, false, 0xe934a84adb052768 },  { 1, true, 0x5014607643a9b4c3 },
        { 4, false, 0x9136a0dca57457ee },  { 14, false, 0x8282dcc4994e35c8 },
        { 14, true, 0xc3bd6bf63deb6df0 },  { 222, false, 0xb641ae8cb691c174 },
        { 222, true, 0x20cb8ab7ae10c14a },
    };
    uint8_t bytes[N_SANITY];

    sanity_bytes(bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(hl_hash(bytes, cases[i].n_bytes, cases[i].seeded ? prime : 0) == cases[i].hash);
    assert_true(hl_hash("abc", 3, 0) == 0x44bc2cf5ad770999);
}

/* Cuts texts of every length in every pair of places. */
static void pieces_make_the_whole(void **state)
{
    (void)state;
    uint8_t bytes[N_SANITY];

    sanity_bytes(bytes);
    for (size_t n = 0; n <= 100; n++) {
        uint64_t whole = hl_hash(bytes, n, 7);
        for (size_t first = 0; first <= n; first++) {
            for (size_t second = first; second <= n; second++) {
                hl_hasher hasher;
                hl_hash_start(&hasher, 7);
                hl_hash_add(&hasher, bytes, first);
                hl_hash_add(&hasher, bytes + first, second - first);
                hl_hash_add(&hasher, bytes + second, n - second);
                assert_true(hl_hash_end(&hasher) == whole);
            }
        }
    }
}

static void asking_does_not_end_it(void **state)
{
    (void)state;
    hl_hasher hasher;

    hl_hash_start(&hasher, 0);
    hl_hash_add(&hasher, "a", 1);
    assert_true(hl_hash_end(&hasher) == hl_hash("a", 1, 0));
    hl_hash_add(&hasher, "bc", 2);
    assert_true(hl_hash_end(&hasher) == 0x44bc2cf5ad770999);
}

static void numbers_are_little_endian_bytes(void **state)
{
    (void)state;
    static const uint8_t bytes[8] = { 8, 7, 6, 5, 4, 3, 2, 1 };
    hl_hasher            hasher;

    hl_hash_start(&hasher, 5);
    hl_hash_add_u64(&hasher, 0x0102030405060708);
    assert_true(hl_hash_end(&hasher) == hl_hash(bytes, 8, 5));
    assert_true(hl_hash_pair(5, 0x0102030405060708) == hl_hash(bytes, 8, 5));
    assert_true(hl_hash_pair(1, 2) != hl_hash_pair(2, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vectors),
        cmocka_unit_test(pieces_make_the_whole),
        cmocka_unit_test(asking_does_not_end_it),
        cmocka_unit_test(numbers_are_little_endian_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
