/* Two nodes in one process: they find each other on this machine, both want the same page,
 * and it is fetched once.
 *
 *     make example && build/examples/two_nodes
 *
 * In real life each node is a process of its own, and there is one line less: a node needs
 * no list of peers to find those on its own host.
 */
#include <peerage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fetches;

/* What an application does for a page: the answer it has, or the work. */
static void page(peerage *node, const char *who, const char *channel)
{
    struct peerage_answer answer;
    struct peerage_ask ask = {
        .key = channel,
        .key_bytes = strlen(channel),
        .ttl_ms = 10000,
        .flags = PEERAGE_LOADS,
    };

    peerage_ask(node, &ask, &answer, NULL, NULL);
    if (answer.kind == PEERAGE_LOAD) {
        char text[64];
        int bytes = snprintf(text, sizeof text, "the page of %s, fetch %d", channel, ++fetches);
        struct peerage_item item = {.at = text, .bytes = (size_t)bytes, .ttl_ms = 10000};
        printf("%s: fetched it: %s\n", who, text);
        peerage_finish(node, answer.load_id, &item, 1);
    } else if (answer.kind == PEERAGE_VALUE) {
        printf("%s: has it: %.*s\n", who, (int)answer.bytes, (const char *)answer.at);
        peerage_blob_free(answer.blob);
    } else {
        printf("%s: %s\n", who, peerage_error_text(answer.error));
    }
}

static peerage *start(int port)
{
    struct peerage_options options;
    char line[PEERAGE_LINE_MAX], address[56];
    peerage *node;

    peerage_options_default(&options);
    options.enabled = 1;
    options.secret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    options.label = "example";
    options.listen = options.advertise = "127.0.0.1";
    options.port = port;
    if (peerage_new(&options, &node, line) < 0 || peerage_start(node, line) < 0) {
        fprintf(stderr, "%s\n", line);
        exit(1);
    }
    peerage_address(node, address);
    printf("started %s\n", address);
    return node;
}

/* Both past warming, so that both own their share. */
static void wait_for_both(peerage *node)
{
    struct peerage_member members[2];

    for (int tries = 0; tries < 500; tries++) {
        if (peerage_members(node, members, 2) == 2 && members[0].owns && members[1].owns)
            return;
        usleep(20000);
    }
    fprintf(stderr, "the nodes did not find each other\n");
    exit(1);
}

int main(int argc, char **argv)
{
    int port = argc > 1 ? atoi(argv[1]) : 27946;
    peerage *one = start(port), *other = start(port);

    wait_for_both(one);
    wait_for_both(other);
    page(one, "one", "durov");
    page(other, "other", "durov");
    page(one, "one", "telegram");
    page(other, "other", "telegram");
    peerage_free(one);
    peerage_free(other);
    if (fetches != 2) {
        fprintf(stderr, "%d fetches for two pages\n", fetches);
        return 1;
    }
    printf("two pages, two fetches\n");
    return 0;
}
