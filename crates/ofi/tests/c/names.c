/* Names of endpoints, in either address family, and the descriptors that an endpoint takes. */
#include "common.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/socket.h>

enum { FOUR = 48, SIX = 60, DESCRIPTORS = 8 };

static struct side a, b;

/* What fi_getinfo says of endpoints that listen at an address of this host. */
static int asks(const char *node, uint32_t format, struct fi_info **found)
{
    struct fi_info *hints = hints_for(FI_MSG | FI_TAGGED);
    int result;
    hints->addr_format = format;
    result = fi_getinfo(FI_VERSION(1, 17), node, NULL, FI_SOURCE, hints, found);
    fi_freeinfo(hints);
    return result;
}

/* A message goes between two endpoints of `info`, whose names have `bytes`. Returns one name. */
static void talk(size_t bytes, unsigned char name[64])
{
    char byte;
    CHECK(info->src_addrlen == bytes);
    GIVES(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    GIVES(fi_domain(fabric, info, &domain, NULL), 0);
    open_both(&a, &b);
    GIVES(fi_tinject(a.ep, "x", 1, a.other, 1), 0);
    GIVES(fi_trecv(b.ep, &byte, 1, NULL, b.other, 1, 0, NULL), 0);
    CHECK(next(&b, &a).len == 1 && byte == 'x');
    memcpy(name, a.address, sizeof a.address);
}

/* A table refuses a name of the other family, and a domain such an endpoint. */
static void refuses(const void *name, struct fi_info *other)
{
    fi_addr_t stored = 0;
    int error = 0;
    struct fid_ep *ep;
    GIVES(fi_av_insert(a.av, name, 1, &stored, FI_SYNC_ERR, &error), 0);
    CHECK(stored == FI_ADDR_NOTAVAIL && error == FI_EINVAL);
    GIVES(fi_endpoint(domain, other, &ep, NULL), -FI_EINVAL);
}

static void end(void)
{
    close_side(&a);
    close_side(&b);
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
}

static int has_ipv6(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int s = socket(AF_INET6, SOCK_DGRAM, 0);
    int bound = s >= 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0;
    close(s);
    return bound;
}

static void families(void)
{
    unsigned char four[64] = {0}, six[64] = {0};
    struct fi_info *info4, *info6, *found = NULL, *hints = hints_for(FI_MSG);
    GIVES(asks("127.0.0.1", FI_FORMAT_UNSPEC, &info4), 0);
    info = info4;
    talk(FOUR, four);
    end();
    /* The description that names an endpoint describes more of its kind. */
    hints->src_addr = malloc(FOUR);
    hints->src_addrlen = FOUR;
    memcpy(hints->src_addr, four, FOUR);
    GIVES(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found), 0);
    CHECK(found->src_addrlen == FOUR && found->addr_format == info4->addr_format);
    fi_freeinfo(found);
    hints->src_addrlen = FOUR - 1;
    GIVES(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found), -FI_ENODATA);
    fi_freeinfo(hints);
    if (has_ipv6()) {
        GIVES(asks("::1", FI_FORMAT_UNSPEC, &info6), 0);
        CHECK(info6->addr_format != info4->addr_format);
        GIVES(asks("::1", info4->addr_format, &found), -FI_ENODATA);
        GIVES(asks("127.0.0.1", info6->addr_format, &found), -FI_ENODATA);
        info = info6;
        talk(SIX, six);
        refuses(four, info4);
        end();
        info = info4;
        talk(FOUR, four);
        refuses(six, info6);
        end();
        fi_freeinfo(info6);
    }
    fi_freeinfo(info4);
}

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Programs open dozens of endpoints, and may have 1,024 descriptors. */
static void descriptors(void)
{
    int before;
    open_domain(FI_MSG | FI_TAGGED);
    /* What all endpoints of a process share is open with the first. */
    open_side(&a, FI_WAIT_NONE, 0);
    enable(&a);
    before = open_descriptors();
    open_side(&b, FI_WAIT_NONE, 0);
    enable(&b);
    CHECK(open_descriptors() - before <= DESCRIPTORS);
    close_side(&b);
    CHECK(open_descriptors() == before);
    /* Two of the queue, and three more of the endpoint. */
    open_side(&b, FI_WAIT_FD, 0);
    enable(&b);
    CHECK(open_descriptors() - before <= DESCRIPTORS + 5);
    close_side(&b);
    close_side(&a);
    close_domain();
}

int main(void)
{
    families();
    descriptors();
    puts("names: all is well");
    return 0;
}
