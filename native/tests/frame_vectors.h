/* Made by tests/vectors/make_frames.py; what the fields mean stands in test_frames.c. */
static const struct challenge_vector challenge_vectors[] = {
    {
        .label = "vectors",
        .server_id = UINT64_C(144964032628459529),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .challenge = "504743010203040506070809a7abe500ae2455ea1935aaebb068a372da716702651119dc0000"
        "0000",
    },
    {
        .mode = UINT64_C(1),
        .label = "vectors",
        .server_id = UINT64_C(144964032628459529),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .challenge = "504743010203040506070809e3dc5deec5eef82f902314cf7319df1bda716702651119dc0100"
        "0000",
    },
};
static const struct frame_vector frame_vectors[] = {
    {
        .name = "hello",
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(2),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(1),
        .sent_ms = UINT64_C(1700000000000),
        .head = "5047010002ef00940000000000000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "080989b869b2c9e16619edba6b87c3ade76600000000000000010000018bcfe5680000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "000031b00433be69ac1db37ee1c22092158868eefc68e3498b21538320de5c72111b",
    },
    {
        .name = "welcome",
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(3),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(1001),
        .sent_ms = UINT64_C(1700000000001),
        .request_id = UINT64_C(72340172838076673),
        .head = "5047010003ef00940000000000000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011a7abe500ae2455ea1935aaebb068a37200000000000003e90000018bcfe5680101010101"
        "0101010100000000000000000000000000000000000000000000000000000000000000000000"
        "000013c3b8c51be2a1fc233cf689c3536c6bb3cb1093a5b6352e5eb28929f13109bf",
    },
    {
        .name = "ask",
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(4),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(2001),
        .sent_ms = UINT64_C(1700000000002),
        .request_id = UINT64_C(144680345676153346),
        .head = "5047010004ef00c60000000000000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "080989b869b2c9e16619edba6b87c3ade76600000000000007d10000018bcfe5680202020202"
        "02020202020002050a000013000000fa00002710000027100000753000000000000000000000"
        "00000102030405060708f1f2f3f4f5f6f7f870616765733a706167653a736475726f762f6e64"
        "75726f7670616765733a70616765cddc8e0baae3528c48abac12a752fa593c59f59689f64f14"
        "72132fdffa75289f",
        .flags = UINT64_C(2),
        .budget_ms = UINT64_C(250),
        .load_timeout_ms = UINT64_C(10000),
        .ttl_ms = UINT64_C(10000),
        .stale_ms = UINT64_C(30000),
        .chain = {UINT64_C(72623859790382856), UINT64_C(17434265340928784376)},
        .key = "pages:page:sdurov/n",
        .channel = "durov",
        .loader = "pages:page",
        .chain_count = UINT64_C(2),
    },
    {
        .name = "value",
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(6),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(3001),
        .sent_ms = UINT64_C(1700000000003),
        .request_id = UINT64_C(217020518514230019),
        .value = "6120706167652c20d0bad0b0d0bdd0b0d0bbd18b2c20d982d986d8a7d8a92c20f09f93ba",
        .head = "5047010006ef00b40000002400000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011a7abe500ae2455ea1935aaebb068a3720000000000000bb90000018bcfe5680303030303"
        "03030303000100000000000000000000000000000000251c00007530000001f4112233445566"
        "7788ac2fad9f0b2caf1a510080dd6858e3b5fff67cc11276cb4aafbcad9ab991672bdad9589d"
        "ec54374f0493abb4956ab85eceb45970207e7ddc99f579655495c026",
        .wire_value = "6120706167652c20d0bad0b0d0bdd0b0d0bbd18b2c20d982d986d8a7d8a92c20f09f93ba",
        .value_type = UINT64_C(1),
        .ttl_ms = UINT64_C(9500),
        .stale_ms = UINT64_C(30000),
        .age_ms = UINT64_C(500),
        .delete_id = UINT64_C(1234605616436508552),
    },
    {
        .name = "value, and more follow",
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(6),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(4001),
        .sent_ms = UINT64_C(1700000000004),
        .request_id = UINT64_C(289360691352306692),
        .value = "7b7d",
        .head = "5047010006ef00b40000000200000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011a7abe500ae2455ea1935aaebb068a3720000000000000fa10000018bcfe5680404040404"
        "0404040401020000000000000000000000000000ffffffff0000000000000000000000000000"
        "000044136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a6fa2feb4"
        "d379b250765dc548ecd4c4562e30db85115307947d8e17bb23008d66",
        .wire_value = "7b7d",
        .flags = UINT64_C(1),
        .value_type = UINT64_C(2),
        .ttl_ms = UINT64_C(4294967295),
    },
    {
        .name = "permit",
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(13),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(18446744073709551615),
        .sent_ms = UINT64_C(1700000000005),
        .request_id = UINT64_C(361700864190383365),
        .head = "504701000def00940000000000000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011a7abe500ae2455ea1935aaebb068a372ffffffffffffffff0000018bcfe5680505050505"
        "0505050500000000000000000000000000002710000000000000000000000000000000000000"
        "0000890e540eba2da187f96b49de00246092b0bf53bc8ada1a2bc7d0c8193caf8a22",
        .load_timeout_ms = UINT64_C(10000),
    },
    {
        .name = "push of 1000 bytes",
        .label = "vectors",
        .secrets = "eac8550de7b94f222163845b5f92e7b8b5f547d62227a6fd60b9c1f3a104306d,05d43a9d90e"
        "b80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(17),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(6001),
        .sent_ms = UINT64_C(1700000000006),
        .request_id = UINT64_C(434041037028460038),
        .value = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425"
        "262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b"
        "4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f7071"
        "72737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f9091929394959697"
        "98999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbd"
        "bebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3"
        "e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fa000102030405060708090a0b0c0d0e"
        "0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334"
        "35363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a"
        "5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80"
        "8182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6"
        "a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcc"
        "cdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2"
        "f3f4f5f6f7f8f9fa000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d"
        "1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243"
        "4445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f60616263646566676869"
        "6a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f"
        "909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5"
        "b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadb"
        "dcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fa00010203040506"
        "0708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c"
        "2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152"
        "535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778"
        "797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e"
        "9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4"
        "c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9ea"
        "ebecedeeeff0f1f2f3f4f5f6",
        .head = "5047010011ee05b3000003e800000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "080989b869b2c9e16619edba6b87c3ade76600000000000017710000018bcfe5680606060606"
        "06060606000000ff000004000000000000000000000000010000000000000000000000000000"
        "00007261773d6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6363636363636363636363636363636363636363636363636363636363636363636363636363"
        "6363636363636363636363636363636363636363636363636363636363636363636363636363"
        "6363636363636363636363636363636363636363636363636363636363636363636363636363"
        "6363636363636363636363636363636363636363636363636363636363636363636363636363"
        "6363636363636363636363636363636363636363636363636363636363636363636363636363"
        "6363636363636363636363636363636363636363636363636363636363636363636363636363"
        "6363636363636363636363636363636363636363636363636363634e4c294b331f7a2099a379"
        "bec34b9f9fc03dc46ab465d998f4d683da53487e6d2e3f69f655ff9de639edfd9e543cb4b644"
        "5f0f8f409497e930c2d20d62e26723",
        .wire_value = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425"
        "262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b"
        "4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f7071"
        "72737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f9091929394959697"
        "98999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbd"
        "bebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3"
        "e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fa000102030405060708090a0b0c0d0e"
        "0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334"
        "35363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a"
        "5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80"
        "8182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6"
        "a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcc"
        "cdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2"
        "f3f4f5f6f7f8f9fa000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d"
        "1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243"
        "4445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f60616263646566676869"
        "6a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f"
        "909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5"
        "b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadb"
        "dcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fa00010203040506"
        "0708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c"
        "2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152"
        "535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778"
        "797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e"
        "9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4"
        "c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9ea"
        "ebecedeeeff0f1f2f3f4f5f6",
        .ttl_ms = UINT64_C(1),
        .key = "raw=kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
        .channel = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
        "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
        "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
        "ccccccccccccccccccccccccccc",
    },
    {
        .name = "drop",
        .label = "vectors",
        .secrets = "eac8550de7b94f222163845b5f92e7b8b5f547d62227a6fd60b9c1f3a104306d,05d43a9d90e"
        "b80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(19),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "89b869b2c9e16619edba6b87c3ade766",
        .server_random = "a7abe500ae2455ea1935aaebb068a372",
        .counter = UINT64_C(7001),
        .sent_ms = UINT64_C(1700000000007),
        .request_id = UINT64_C(506381209866536711),
        .value = "00",
        .head = "5047010013ee00b50000000100000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "080989b869b2c9e16619edba6b87c3ade7660000000000001b590000018bcfe5680707070707"
        "0707070718000000000000010000000000000000000000000000000000000000ffffffffffff"
        "ffff6b6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d915047"
        "8564791c1081cc708da04475d882b36501414c589220d8b7e3a7794956",
        .wire_value = "00",
        .flags = UINT64_C(24),
        .delete_id = UINT64_C(18446744073709551615),
        .key = "k",
    },
    {
        .name = "hello",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(2),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(1),
        .sent_ms = UINT64_C(1700000000000),
        .head = "5047010102ef00840000000000000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "08098a368ac8c745d53fcf2aae6e19d50d8100000000000000010000018bcfe5680000000000"
        "00000000302d18704adf97d7940463f90fe7bbc798dfbfa6bd92c780ec5bea7e83a6948ef551"
        "fc8a257f25d6cd1851fdd4f5fcf967d26052",
    },
    {
        .name = "welcome",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(3),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(1001),
        .sent_ms = UINT64_C(1700000000001),
        .request_id = UINT64_C(72340172838076673),
        .head = "5047010103ef00840000000000000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011e3dc5deec5eef82f902314cf7319df1b00000000000003e90000018bcfe5680101010101"
        "010101016464f69dadfdf48628e87c616243dfdbe314cdfa5c4ca2d68255ac65bc4aad011b7e"
        "e0b0151a305cec81cdb200e10e0eb82b2800",
    },
    {
        .name = "ask",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(4),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(2001),
        .sent_ms = UINT64_C(1700000000002),
        .request_id = UINT64_C(144680345676153346),
        .head = "5047010104ef00b60000000000000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "08098a368ac8c745d53fcf2aae6e19d50d8100000000000007d10000018bcfe5680202020202"
        "0202020277bc5ae499d94889b5654536ebd5c819223d11bba0b01a38f629aa7fb7f0c81b1171"
        "4649282a4dd06bb4c69000521180df660454694d35dc64044aa9905a252a512bcbb6f3c04617"
        "1e2609bf8bf74d3586cf97c15cdeafc363cd0492ce08e8652a50b5b110d7",
        .flags = UINT64_C(2),
        .budget_ms = UINT64_C(250),
        .load_timeout_ms = UINT64_C(10000),
        .ttl_ms = UINT64_C(10000),
        .stale_ms = UINT64_C(30000),
        .chain = {UINT64_C(72623859790382856), UINT64_C(17434265340928784376)},
        .key = "pages:page:sdurov/n",
        .channel = "durov",
        .loader = "pages:page",
        .chain_count = UINT64_C(2),
    },
    {
        .name = "value",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(6),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(3001),
        .sent_ms = UINT64_C(1700000000003),
        .request_id = UINT64_C(217020518514230019),
        .value = "6120706167652c20d0bad0b0d0bdd0b0d0bbd18b2c20d982d986d8a7d8a92c20f09f93ba",
        .head = "5047010106ef00840000003400000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011e3dc5deec5eef82f902314cf7319df1b0000000000000bb90000018bcfe5680303030303"
        "030303036e8dbfb43885c75dc2ebb2a23e68d1ad52517fc2c7cc643a5db86e7ac6f8bcc83ab7"
        "c6a16e92f4a010ae30e829985e7b57746b44",
        .wire_value = "2f4bc15bf8739140cfb9e69be5983f212d3ddcdfae46d9ea139d2efd7cebdffb9790bd68141d"
        "ea8c879914da41b62b72c5402675",
        .value_type = UINT64_C(1),
        .ttl_ms = UINT64_C(9500),
        .stale_ms = UINT64_C(30000),
        .age_ms = UINT64_C(500),
        .delete_id = UINT64_C(1234605616436508552),
    },
    {
        .name = "value, and more follow",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(6),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(4001),
        .sent_ms = UINT64_C(1700000000004),
        .request_id = UINT64_C(289360691352306692),
        .value = "7b7d",
        .head = "5047010106ef00840000001200000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011e3dc5deec5eef82f902314cf7319df1b0000000000000fa10000018bcfe5680404040404"
        "04040404b28f5c2ade13ad005576308735b44d899af014b9ba93de4eeb10f948629b3e83c0d2"
        "f8720e25a9a508d2cc0940c17f1f703526d5",
        .wire_value = "c345075292d0f053353355a5a664879d42c2",
        .flags = UINT64_C(1),
        .value_type = UINT64_C(2),
        .ttl_ms = UINT64_C(4294967295),
    },
    {
        .name = "permit",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .from_server = UINT64_C(1),
        .kind = UINT64_C(13),
        .sender_id = UINT64_C(144964032628459529),
        .receiver_id = UINT64_C(723685415333072913),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(18446744073709551615),
        .sent_ms = UINT64_C(1700000000005),
        .request_id = UINT64_C(361700864190383365),
        .head = "504701010def00840000000000000000da716702651119dc02030405060708090a0b0c0d0e0f"
        "1011e3dc5deec5eef82f902314cf7319df1bffffffffffffffff0000018bcfe5680505050505"
        "0505050539dc5f306018262264e63ff44f34df04411eb2052ec846f72e47bc05b6337543cf5e"
        "ff711e1134870524df4f9efbd77f8d685471",
        .load_timeout_ms = UINT64_C(10000),
    },
    {
        .name = "push of 1000 bytes",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "eac8550de7b94f222163845b5f92e7b8b5f547d62227a6fd60b9c1f3a104306d,05d43a9d90e"
        "b80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(17),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(6001),
        .sent_ms = UINT64_C(1700000000006),
        .request_id = UINT64_C(434041037028460038),
        .value = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425"
        "262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b"
        "4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f7071"
        "72737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f9091929394959697"
        "98999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbd"
        "bebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3"
        "e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fa000102030405060708090a0b0c0d0e"
        "0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334"
        "35363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a"
        "5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80"
        "8182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6"
        "a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcc"
        "cdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2"
        "f3f4f5f6f7f8f9fa000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d"
        "1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243"
        "4445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f60616263646566676869"
        "6a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f"
        "909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5"
        "b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadb"
        "dcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fa00010203040506"
        "0708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c"
        "2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152"
        "535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778"
        "797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e"
        "9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4"
        "c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9ea"
        "ebecedeeeff0f1f2f3f4f5f6",
        .head = "5047010111ee0583000003f800000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "08098a368ac8c745d53fcf2aae6e19d50d8100000000000017710000018bcfe5680606060606"
        "06060606533cf6dae088e8095a9584178941fd73bca6b61f18ac3e8d6cfb2450dfd1ceefa3bd"
        "12c08df234733b1a33cf10a28d192c1012660d6cf949b1984053c61b8b606e4a065e7edd4633"
        "82736995dd5711a3960e37f309beec197ee9ebf83f867ae456b1d9d4afbcfda97be5ab523b78"
        "aa1382e88f04234e1e7dc503fbe80d3212cb3f729216f621fd4f74101eab76db277f05f63e8c"
        "3db9be9b8a74924efbc585cd339add32f0b1afffbe4df15458dcbf22d9fec1e2508757a5318f"
        "e7f85ad271e7501b15a2f82680d63cb5ca044f17bb69f6085f3a8c9f940241fbb772bc90bee5"
        "e20b9718ce5ee1b124f3fed3ba243dd704fe867b1c7ff9050bf0f891a63d83386a959c50f3ff"
        "cd9bad29c1fdd2c40b70da41f1547fe82dbdae5b64d275bdb1013e1e4c37c58b6be8f1c1d88d"
        "e0696677af99c0114b9d15ddc2d7b343c52fb674018932af5a9215aeddaff3804c35e6c97e3d"
        "ce28435936bc07dc131374a42b3386f1a352f6915806d7716955d8632ecca438c49177a640ca"
        "cfbf740e4d9119aecab6c0d0b8ba664ea6a79826b0d70a55c7e6b438996bb0ea35bc18da122a"
        "a343768017fabd20879bf01cc38eb335a8bcc5dfc1f7f58e86bf70fdd4c9c84037de6725f5b1"
        "4721a29b280d18e8ea1bf1a1b7d7e7d60413fedc6084a749dc898ad0fa86087e13e5c37f0bc3"
        "b4097ee997d7bcf55b1165bbb0d204b0be31c2060434a77e1314c58bd74ae14ebfdd9f898a85"
        "a4a1e08f325034f05a8242fb7e90ca2d8199052b63487357ba60a923d1f7f8e4d065b057b89d"
        "ff14f2e105521116ec6e4529d78147320eeb5b044910a6995ca4aa39bf9828c4e51e0f761d7a"
        "b81ad4a7caf7fb9f0b446a1e53a0dd5195203887ef6b13e6e78fb1899aaeddde53ea5b46acc5"
        "4e7e2e6fceb10fec4a2df8369a577c3693deb0d8c823be1c96e39c4a3f9cd0765c31fc74fb83"
        "bf86910c2a1a03c84d33c0c402015fde4bab546af56bd0cc4c5fb5b6d20e4c49b37de67b8e79"
        "ebc38a53d6b5aafe8bf556265ce4b895aca8d980ac719d3ac00b6b28d6ced42889a46b974505"
        "8b39f7b0f7fb4c96d648204076b7369ccac632991a75aee895716e31cb2b45770f540840949a"
        "41a3a72dfdfd9b4924a896e64fb83715a8a1aa453757104d95e091cd76ad37587f57ffeb2f84"
        "964939b6062af72cb920cb5bec120fc40059234b831d56aeeee76cfbc72f542975c5ba2d0f57"
        "7c66c1fc6a6f54b94a5039c2f064d5009eed306c2015a519a82319f7fd40e51002632fab9328"
        "6fb40828cd7c14ba250fb84a2744fa91da16edc2f3d1cee2d28fc2a72c9384e3b50a73035009"
        "06739b462c3ba72b0a671a3d18feeb9d7fbbb1c495e6d727020b1679fe22768ca796862b5ea1"
        "f3ddb4a94ab65c97eeb6b8b66bef437de3fcfaa62346d31e63a21b926a2fd46d52939e4a3d4f"
        "160314f053ef8045685ee98e1e0079e79f0e90d5347486e8400f59dbf25001f18d8afdb6defc"
        "06d058c7aa1072062d5be2c9135425dbd19ce48cdef8ee40359b35f63059408926bc35976c9d"
        "753a9c7025e7ab88e2c857ec0dafa0be9f2da1c441530aa1ef6b686601a39627658fc38697ac"
        "3e4d6cb53c0c82ac32d7cbda53fd7ac141613c7039cc82bd0e5dfc46d80c7182fd4f8d302963"
        "a4db479eaf91e4b4ecb99436a3159296fa260a135dc44739b52a24a44c43c2b42140e0be3610"
        "f5a24dd454ee70e699ea0492a61f334896f509269144b118723f4533295cfa0bf1ecdf84c4d8"
        "902860e11a42a28681d4de0fc972ecffea0d8957b1282dc45e7503df0700d6a30096834440ed"
        "2ec968d33e853eac7cd0299b19bdde58518e9a14badbd43f0bfb01ab5fb95cf22caa3bbcfb63"
        "268b8a0324",
        .wire_value = "14ebf93ab40a26e6a72ab6e94185ed5eb93ed1de9ea5516059a07e0f5d1d002e18dbe574227f"
        "9cd9b67a4c325958873b8c73a46cfb14c17a65b47d8f01ea1419b7871558874a73d52a30d32c"
        "e7df59bd932145c087635be78c050905bc45dc69b8891860c3d835306de634834776f799ca37"
        "79caa526f9d54fadd70f39a582aa26155abcb60bca4f4f0ef8fd5ecb3548d0522f28ef91643a"
        "f54b9f97cfd593d2b586a021ccf2a15061fd0ed3a6b4182f47abe76056927f0ff7135d01824b"
        "1faf8dc8f7fc8164e748201b2422432007fd089a0290aa994690c510dbceb63f1fd64f5fbc50"
        "a378532d4a505bccc41fa29b7159f26f029ac9fb3b507fa60745e99e790316c640a72cd79332"
        "7300ef16667ee5aa59a03913d2cfac1310dee85a634a25331f3d3c31838e4c08e463b2cf1fb9"
        "d9aca7770473c1c8661298fd5bd3f6f07835318f9ff2950e0828afe33ee30bb1e11757df2028"
        "099490467ceb11fb37bdc2f38aeb31c27d5e2f162ed82765791e8295dbe4318507e86a029626"
        "b21de3a6123a31903695075fe03cc0300168e02b12384a2e076e751de727c62eb26b181e1b66"
        "33af62ff6f7fdb575fef98484cbe93751ebf7bb7985bd78f4fbfaaf82dfc6208b8a150013088"
        "6df40d9b35b44734db5e9420b6988e04443a6b3eaa4871b44184c53895d47f56f3a2dc32caf3"
        "ca2c509aebdf94dc17533d928f58f0fe03b2cf940ea785c7124a81dc37bfe302eacd9ddb0493"
        "e8e7ca0083f7ab92154a6d005e22c35d2c0028b8529d75de0a4b0a0e498eea9c2c587ff0dcef"
        "bad3a2518ebd18fec4ee5739c2526ecb579645c221b7210e4c01003c35e222d15fd8c34959e4"
        "c1dea31009228b53eac325f1454ccd42b8dbafc5aca15b1f427b493427f8a674afd7a6cbf7f6"
        "3be5876ce57241a2ffac8e0a6a0ae84c434636eedaddfb8b004d5f6ca48cc76f2b3ceffe30c8"
        "96de3177de4c5256e45715d0506316684f8842ba10885b46ef505e08b0a20e5e438ea7518f71"
        "a7dcfd856a53ec228c40e1a4adf39dc87cd577baf87291c9aff92d35b0f05efa3a279796156b"
        "5054b531128f1607495af7d9dfbb1d954f9ada7d51a6b614d522210ed31cf7c6e5a4cb212ee8"
        "16fcdd9361c9730df739ebfec9c76bcee10a9c2e7c1a5765f008b2d35efaa088cd1327589ab0"
        "37c038351f16ef85c89e37ae643f040728e84cc09dbad74c77f7649c907013bb0de759b53d95"
        "222d4d7584586d1cd7fb212a7d18aa9db8aaaade297cd90a0a9e1900199ab29c76dc366f140e"
        "f9b49436b20c1c76797468423d1b1d6d0bae10e794eb6e26e4fdfbb776c3e1c461fe3f22eb6b"
        "a1707c87da0286dc3b509cf3ab30c197eeb627831e1b16d35b86a788aea07c86abe670e48e26"
        "9a3c2d92011ee1eba3aca8c599bb3e5e283aa70690d0890e260884bf",
        .ttl_ms = UINT64_C(1),
        .key = "raw=kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
        "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
        .channel = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
        "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
        "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
        "ccccccccccccccccccccccccccc",
    },
    {
        .name = "drop",
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "eac8550de7b94f222163845b5f92e7b8b5f547d62227a6fd60b9c1f3a104306d,05d43a9d90e"
        "b80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .kind = UINT64_C(19),
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .client_random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .server_random = "e3dc5deec5eef82f902314cf7319df1b",
        .counter = UINT64_C(7001),
        .sent_ms = UINT64_C(1700000000007),
        .request_id = UINT64_C(506381209866536711),
        .value = "00",
        .head = "5047010113ee00850000001100000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "08098a368ac8c745d53fcf2aae6e19d50d810000000000001b590000018bcfe5680707070707"
        "07070707cd5125c59e01a32eb122a8878eee5e696899c78b8f3f0a3643f27862af9d71565817"
        "68ca57e9af09334b446f5d0d226cc63da0c2f7",
        .wire_value = "02cdc818d26687d501bc4f9187af27ed82",
        .flags = UINT64_C(24),
        .delete_id = UINT64_C(18446744073709551615),
        .key = "k",
    },
};
static const struct datagram_vector datagram_vectors[] = {
    {
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .random = "89b869b2c9e16619edba6b87c3ade766",
        .counter = UINT64_C(7),
        .sent_ms = UINT64_C(1700000000000),
        .payload = "676f73736970",
        .packet = "5047010001ef00780000000000000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "080989b869b2c9e16619edba6b87c3ade76600000000000000070000018bcfe5680000000000"
        "000000000006676f73736970c3adeb7e5c5e94b867b48d4f48b41173ef48f0d700f52c2a6721"
        "190384367766",
    },
    {
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .random = "89b869b2c9e16619edba6b87c3ade766",
        .counter = UINT64_C(8),
        .sent_ms = UINT64_C(1700000000000),
        .payload = "6a6f696e",
        .pad_to = UINT64_C(600),
        .packet = "5047010001ef02580000000000000000da716702651119dc0a0b0c0d0e0f1011000000000000"
        "000089b869b2c9e16619edba6b87c3ade76600000000000000080000018bcfe5680000000000"
        "0000000000046a6f696e00000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "000000000000000000000000000000000000000000000000000000000000000000000000f024"
        "fbb83e6d0d8f746e44fc57c1cffe11cd7d97a78174887f403db30cc6aec9",
    },
    {
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(1),
        .random = "89b869b2c9e16619edba6b87c3ade766",
        .counter = UINT64_C(9),
        .sent_ms = UINT64_C(1700000000000),
        .packet = "5047010001ef00720000000000000000da716702651119dc0a0b0c0d0e0f1011000000000000"
        "000189b869b2c9e16619edba6b87c3ade76600000000000000090000018bcfe5680000000000"
        "000000000000fea43a6fc0ecf576bd210bdb3790aca23db71462c26fa56e0737b87e87e7bffa",
    },
    {
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(1),
        .random = "89b869b2c9e16619edba6b87c3ade766",
        .counter = UINT64_C(10),
        .sent_ms = UINT64_C(1700000000000),
        .payload = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425"
        "262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b"
        "4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f7071"
        "72737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f9091929394959697"
        "98999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbd"
        "bebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f101112131415161718191a1b"
        "1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041"
        "42434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f6061626364656667"
        "68696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d"
        "8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3"
        "b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f1011"
        "12131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637"
        "38393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d"
        "5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80818283"
        "8485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9"
        "aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c70001020304050607"
        "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d"
        "2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f50515253"
        "5455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f70717273747576777879"
        "7a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5"
        "c6c7000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223"
        "2425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243444546474849"
        "4a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f"
        "707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495"
        "969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babb"
        "bcbdbebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f10111213141516171819"
        "1a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
        "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465"
        "666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b"
        "8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1"
        "b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7",
        .pad_to = UINT64_C(1400),
        .packet = "5047010001ef05780000000000000000da716702651119dc0a0b0c0d0e0f1011000000000000"
        "000189b869b2c9e16619edba6b87c3ade766000000000000000a0000018bcfe5680000000000"
        "0000000004b0000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445"
        "464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b"
        "6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f9091"
        "92939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7"
        "b8b9babbbcbdbebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f101112131415"
        "161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b"
        "3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f6061"
        "62636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f8081828384858687"
        "88898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacad"
        "aeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7000102030405060708090a0b"
        "0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031"
        "32333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f5051525354555657"
        "58595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d"
        "7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3"
        "a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c70001"
        "02030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"
        "28292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d"
        "4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f70717273"
        "7475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f90919293949596979899"
        "9a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf"
        "c0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d"
        "1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243"
        "4445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f60616263646566676869"
        "6a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f"
        "909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5"
        "b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f10111213"
        "1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233343536373839"
        "3a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
        "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485"
        "868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaab"
        "acadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c700000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000"
        "27fa380a275c338a3524e483b23ec594d76e6cff93f529fe1c88332f96d5b4f9",
    },
    {
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(144964032628459529),
        .random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .counter = UINT64_C(7),
        .sent_ms = UINT64_C(1700000000000),
        .payload = "676f73736970",
        .packet = "5047010101ef00680000000000000000da716702651119dc0a0b0c0d0e0f1011020304050607"
        "08098a368ac8c745d53fcf2aae6e19d50d8100000000000000070000018bcfe5680000000000"
        "000000001bb4de95841df06de0e077d71374130f92f1bf8b1ff9edec",
    },
    {
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .counter = UINT64_C(8),
        .sent_ms = UINT64_C(1700000000000),
        .payload = "6a6f696e",
        .pad_to = UINT64_C(600),
        .packet = "5047010101ef02580000000000000000da716702651119dc0a0b0c0d0e0f1011000000000000"
        "00008a368ac8c745d53fcf2aae6e19d50d8100000000000000080000018bcfe5680000000000"
        "0000000059aa41a9035d9cab36ac36770ebefbed1444f87f2e304d2609c303e0fe487785f538"
        "18f8e0eb26382e610d12beb733daca9fc90c61fae9bf6fac7c375caa652640119aeb486f7743"
        "86778df6e21491a8fd16e092b2b7bd8a8c840fc15393ed4f47179a10d387487601cf51f8b8d2"
        "5cc3c86a148dd121a46638c0bb01af1ce1cc6e8dddf6b4ea1611ce9fca769cdc176914e994df"
        "d28b55e573932170dc5ac2ec8dd78025ea5a4d6b53dc9e723c3f7b15452b608d2bd7754fd853"
        "6077ab0ff37d6c286bb7468bbfff5d356f73f8359694257447d5019b127ba33fc030649d3f73"
        "70ec23fa4cf3830f2adffca9c096844909de481c5e74de46637f8396297393b517deec03f8fc"
        "9e387b39b806d24bb5433a7476edf9a53f3bba3d99d220c8488fa9e257f7947a4c9ad35fbcf4"
        "42e31d34e68ff4f3eec3df234ad2b32a411cc9044ad35b75ea35ca259d9f8a0a82913e2be7ce"
        "63ffb025a818c378d63cceb37954b14cc7cd788817a39dee470c47864fe22957ef670dc7c264"
        "d2b13fc98c3fda27329b326bbedc9b22fb360f6d323b11948db37e001792ff0a42cdd0f7861b"
        "75b7eae2254a3f808177940eae55ba901e36f091299b08af801b31b4a50a10cca0107832a99e"
        "3745a5238b1ce8d51f5ba3f66c9da2884d27ccdb76bf2f9a963e6948adc7dac72d0a6513e1a2"
        "d8ff8d7505f571eca37b34e783a88e090e93b9428c27739502a18ba586ab",
    },
    {
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(1),
        .random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .counter = UINT64_C(9),
        .sent_ms = UINT64_C(1700000000000),
        .packet = "5047010101ef00620000000000000000da716702651119dc0a0b0c0d0e0f1011000000000000"
        "00018a368ac8c745d53fcf2aae6e19d50d8100000000000000090000018bcfe5680000000000"
        "0000000052b613442de852a99177f3001460807f3b02",
    },
    {
        .mode = UINT64_C(1),
        .label = "vectors",
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .sender_id = UINT64_C(723685415333072913),
        .receiver_id = UINT64_C(1),
        .random = "8a368ac8c745d53fcf2aae6e19d50d81",
        .counter = UINT64_C(10),
        .sent_ms = UINT64_C(1700000000000),
        .payload = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425"
        "262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b"
        "4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f7071"
        "72737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f9091929394959697"
        "98999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbd"
        "bebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f101112131415161718191a1b"
        "1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041"
        "42434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f6061626364656667"
        "68696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d"
        "8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3"
        "b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f1011"
        "12131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637"
        "38393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d"
        "5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80818283"
        "8485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9"
        "aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c70001020304050607"
        "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d"
        "2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f50515253"
        "5455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f70717273747576777879"
        "7a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5"
        "c6c7000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223"
        "2425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243444546474849"
        "4a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f"
        "707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495"
        "969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babb"
        "bcbdbebfc0c1c2c3c4c5c6c7000102030405060708090a0b0c0d0e0f10111213141516171819"
        "1a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
        "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465"
        "666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b"
        "8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1"
        "b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7",
        .pad_to = UINT64_C(1400),
        .packet = "5047010101ef05780000000000000000da716702651119dc0a0b0c0d0e0f1011000000000000"
        "00018a368ac8c745d53fcf2aae6e19d50d81000000000000000a0000018bcfe5680000000000"
        "000000005af4684e64c77a0f9256a98eccf7735b0011f1128f115151f040790ddee15e785e9a"
        "0372cd4bb43e76e0ae21ef1a1a5fd84cdb9a3a610f3a54309bb9b383d5138561cc60793922c1"
        "e576c6fe1d5b0c866fc5701205caf4f1609e2235aee3df6b11d57627f3d7603000bab38b2e07"
        "aff5bcc8425489f38f36f4c189af9830f9e2657cc1f977a50fe4d9f5159d4306e9cdce75cc9a"
        "f8efc43eed95196432477388e3dbae24887ddbaa6a25bddd13160b8c4520318c7249b8acf0a2"
        "6234215dc7b4f823b50a4e5d6bb7a1e423a919e4dcbe6ac3b3f2aa06bf2a05ce3d646d4eefdb"
        "16c55d429e1270aaa14ab81434f98d9c165c5122c16312d091b3658f7d5f9135cb15841cf8ee"
        "61d731a82b74335ef6c7d3c36bae74b444c29102aebf41438c404a39bd1b884e5e491414dc1c"
        "2e7950353edf3fcbe22759bcc08ec84e403e634d19de377abcf9678bc7866d43d69de7d235a0"
        "0c68539e4d262ae98738d67d653bb6ceaece2d6368bf568beefb42199cdeb7f0e3371eee14b5"
        "8b0123cbb73cdaba67829fd50b2d911787d8f0bd16fd8b113038e9f2b79ea08bcdd627894ca5"
        "a3ced1d8a31d138bc2ea9e78051f7f21a48d2d865a5c8306f076acc5bafe6f2318770f161be6"
        "fa0908a3a8629d28b57d827d585d0a796e45ffbf3bc767ee4f78c54df22d0ddb01365a956f2c"
        "51dc18aea8e93173f05aa25aba4164948878247bcdc4684a57eed025ee4b8ec8afa9413edb39"
        "644fe19b63b94568afa50a88ceef23ddd8e38340c1511ae26eb6f42416d9c6aa331a4f682bbf"
        "ed259ffbbb8e5760a0031cf607d3f60b229a1563d99733890b015718e5881f2de153aafac331"
        "5f171bf85213771b288d831443d404df18a2c05b09bf0861f4fd462167bbb88327f8e491436d"
        "99c3d4579769389f0f6e6007f7875ac3c96e5a3a26469abe6c3d7708c5011d4ff8e0367abc87"
        "50216f397b5bd63bbcfb88cc8d8b16cbc5f101ce950704814cb7021e9236398d2408fee23617"
        "1603800566384f74ad6c20eff3a49e0edf49ad2db5347295e2299959b8616f4ff12b79716bf5"
        "85588500b8d5ef88617621da4bd6d397a5b863474fb68e75e7079a298e8299c2a15f89d84fe8"
        "a5e76255c6ec01aa3aa5cc905f5a5a3f9dc1d1bdafeda755725bc76bac8d7382367fa2c81c35"
        "413880d5b29a0c1212ac1a75dafce4cd6cfa8c045cfce59c1f4d5d404f2e454128166a87884e"
        "0797b4a0b38c426e5152c541bd820e335e792c777e7668559fa4f11855c62a21d5eaa2a19980"
        "9c655b99c863900ea7969d8b13f9570ce2fa3b15a19c6abd948f5f8716c6886f4f1b84c53b4b"
        "a3855840108d90c023c9a374dddb07eef340cc3846c0c76122d1b52e4cff915feb450738b08e"
        "f7ce4b8e77ac1778cdc903ff4e758e5c0e4d26527a2da9df3546e7827bbff45cf04d86e1648a"
        "17ab51ea3f61e54cdd222ab10c533c861394b2f8bbab07559ba0d9e578d73d13c0357c30f8f0"
        "dff9b475761532120c6fe521cc9cdba0a5c5c5c01e2129db2e9332cac86fc0d57ad9afa5958d"
        "48cafaf6bfbd1058db6f7188a0357e1c41744d3664cedee7c94b87febb0a4f0b66b1cc726b6b"
        "7bacc262a6245bcb5b2b31fac40e5e598004cebbd42ab5a1b02e141293d330b7f5d2adac45a5"
        "7c5ef414a884f48b7ebc5ea968b7dec33a09e5f060f51ec2f7bff9b2cefa692430c78253ba8a"
        "0fafd0d4b5513b6a27de2fabe794452ba82c0aaec324c4a02e80ced909a0d0710ab375a8a800"
        "233f7117c434a78780deb443e1c5f5bda44ec2e500500f73b1165fcf2074213cdeed3186b745"
        "efb95964ce52cc043d679b759d237743c0df6d5e26fb48100571533f79983c4c",
    },
};
static const struct rest_vector rest_vectors[] = {
    {
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .label = "vectors",
        .name = "peerage:v1:e:key",
        .value = "612076616c75652061742072657374",
        .nonce = "dec3d67551526a69827e5388f90c84126cbf923a52690b2b",
        .sealed = "01dec3d67551526a69827e5388f90c84126cbf923a52690b2b34ee6e9c1e33b053f80426c416"
        "f2d41bb015e50860c8d811e6fe2af7ec99d5",
    },
    {
        .secrets = "05d43a9d90eb80314fbb0b130e7216232a24b4cae03fb75fcc289c9451d6c863",
        .label = "vectors",
        .nonce = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934c",
        .sealed = "01e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934c10ab5eefbc58b6a81301cb9b9e"
        "b925ea",
    },
};
