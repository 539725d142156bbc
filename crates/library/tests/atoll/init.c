/* atoll_init(), atoll_why(), atoll_size(), atoll_strerror(). */
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

/* Every call that takes a handle, with one that is wrong. */
static void refuse(atoll_id id, int error)
{
    atoll_header header;
    char byte = 0;

    GIVES(error, atoll_size(id));
    GIVES(error, atoll_finish(id, ATOLL_WAIT));
    GIVES(error, atoll_connect(id, 0));
    GIVES(error, atoll_disconnect(id, 0));
    GIVES(error, atoll_send(id, 0, 1, &byte, 1));
    GIVES(error, atoll_recv(id, ATOLL_ANY, 1, &byte, 1, NULL));
    GIVES(error, atoll_probe(id, ATOLL_ANY, 1));
    GIVES(error, atoll_read_header(id, &header));
    GIVES(error, atoll_find_header(id, 0, 1, &header));
    GIVES(error, atoll_rcv_desc(id, 1, &byte, 1));
    GIVES(error, atoll_allow_rdma(id, ATOLL_RDMA_BOTH));
    GIVES(error, atoll_put(id, 0, &byte, &byte, 1));
    GIVES(error, atoll_get(id, 0, &byte, &byte, 1, 0, 0));
}

int main(void)
{
    char text[256], byte;
    pid_t child;
    int status;

    GIVES(0, atoll_why(text, sizeof text));
    CHECK(text[0] == 0);
    refuse(0, -EBADF);
    GIVES(-EBADF, atoll_register_memory(&byte, 1));
    GIVES(-EBADF, atoll_deregister_memory(&byte, 1));
    start();
    CHECK(self == 0 || self == 1);
    GIVES(0, atoll_why(NULL, 0));
    GIVES(-EALREADY, atoll_init());
    CHECK(atoll_why(text, sizeof text) == (int)strlen(text) && strstr(text, "before") != NULL);
    CHECK(atoll_why(text, 5) > 4 && strlen(text) == 4);
    /* Not ours. */
    refuse(other, -EBADF);
    refuse(-1, -EBADF);
    refuse(INT32_MAX, -EBADF);
    CHECK(strcmp(atoll_strerror(-EBADF), atoll_strerror(EBADF)) == 0);
    CHECK(strcmp(atoll_strerror(EBADF), atoll_strerror(EPIPE)) != 0);
    CHECK(strcmp(atoll_strerror(0), atoll_strerror(ENOTCONN)) != 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        refuse(self, -ECHILD);
        GIVES(-ECHILD, atoll_init());
        GIVES(-ECHILD, atoll_register_memory(&byte, 1));
        GIVES(-ECHILD, atoll_deregister_memory(&byte, 1));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    meet();
    GIVES(0, atoll_finish(self, ATOLL_WAIT));
    refuse(self, -EBADF);
    GIVES(-EALREADY, atoll_init());
    return 0;
}
