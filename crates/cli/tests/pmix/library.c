/* Stands in for libpmix.so.2. Processes of one host find each other by files in the
 * folder that PMIX_TEST_FOLDER names; there is no launcher. A file dead-N there makes
 * the others hear that rank N died.
 *
 * VERSION  what it says of its version
 * HANGS    PMIx_Init never returns
 * LACKS    it has no PMIx_Put */
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t me;
static int fences;

static void path(char *to, const char *kind, const char *name)
{
    snprintf(to, 1024, "%s/%s-%s", getenv("PMIX_TEST_FOLDER"), kind, name);
}

static void place(const char *kind, const char *name, const char *text)
{
    char at[1024], before[1100];
    FILE *file;

    path(at, kind, name);
    snprintf(before, sizeof before, "%s.%u", at, me.rank);
    file = fopen(before, "w");
    fputs(text, file);
    fclose(file);
    rename(before, at);
}

static unsigned size(void)
{
    return (unsigned)atoi(getenv("PMIX_TEST_SIZE"));
}

const char *PMIx_Get_version(void)
{
    return VERSION;
}

const char *PMIx_Error_string(pmix_status_t status)
{
    (void)status;
    return "NO-LUCK";
}

pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t count)
{
    (void)info, (void)count;
#ifdef HANGS
    for (;;)
        pause();
#endif
    strcpy(me.nspace, getenv("PMIX_NAMESPACE"));
    me.rank = (uint32_t)atoi(getenv("PMIX_RANK"));
    *proc = me;
    return PMIX_SUCCESS;
}

#ifndef LACKS
pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value)
{
    if (scope != PMIX_GLOBAL || value->type != PMIX_STRING)
        return PMIX_ERR_BAD_PARAM;
    place("value", key, value->data.string);
    return PMIX_SUCCESS;
}
#endif

pmix_status_t PMIx_Commit(void)
{
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Fence(const pmix_proc_t procs[], size_t count, const pmix_info_t info[],
                         size_t infos)
{
    char name[64], at[1024];
    unsigned rank;

    if (procs || count || infos != 1 || strcmp(info->key, PMIX_COLLECT_DATA) ||
        info->value.type != PMIX_BOOL || !info->value.data.flag)
        return PMIX_ERR_BAD_PARAM;
    snprintf(name, sizeof name, "%d-%u", ++fences, me.rank);
    place("fence", name, "");
    for (rank = 0; rank < size(); rank++) {
        snprintf(name, sizeof name, "%d-%u", fences, rank);
        path(at, "fence", name);
        while (access(at, F_OK))
            usleep(1000);
    }
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                       size_t infos, pmix_value_t **value)
{
    char at[1024], text[2048] = "";
    FILE *file;

    (void)info, (void)infos;
    *value = calloc(1, sizeof **value);
    if (proc->rank == PMIX_RANK_WILDCARD && !strcmp(key, PMIX_JOB_SIZE)) {
        (*value)->type = PMIX_UINT32;
        (*value)->data.uint32 = size();
        return PMIX_SUCCESS;
    }
    path(at, "value", key);
    file = fopen(at, "r");
    if (!file)
        return PMIX_ERR_NOT_FOUND;
    if (!fgets(text, sizeof text, file))
        return PMIX_ERR_NOT_FOUND;
    fclose(file);
    (*value)->type = PMIX_STRING;
    (*value)->data.string = strdup(text);
    return PMIX_SUCCESS;
}

static pmix_notification_fn_t handler;

static void done(pmix_status_t status, pmix_info_t *results, size_t count,
                 pmix_op_cbfunc_t released, void *released_data, void *data)
{
    (void)results, (void)count, (void)released, (void)released_data;
    if (status == PMIX_EVENT_ACTION_COMPLETE)
        place("heard", data, "");
}

static void *watch(void *unused)
{
    pmix_info_t info[2];
    pmix_proc_t dead = me;
    char name[64], at[1024];

    (void)unused;
    memset(info, 0, sizeof info);
    strcpy(info[0].key, PMIX_EVENT_TEXT_MESSAGE);
    strcpy(info[1].key, PMIX_EVENT_AFFECTED_PROC);
    info[1].value.type = PMIX_PROC;
    info[1].value.data.proc = &dead;
    for (dead.rank = 0;; dead.rank = (dead.rank + 1) % size()) {
        snprintf(name, sizeof name, "%u", dead.rank);
        path(at, "dead", name);
        if (dead.rank != me.rank && !access(at, F_OK))
            break;
        usleep(1000);
    }
    /* One of another job's is none of ours. */
    dead.nspace[0] ^= 1;
    handler(0, PMIX_ERR_PROC_ABORTED_BY_SIG, &dead, info, 2, NULL, 0, done, "foreign");
    dead.nspace[0] ^= 1;
    handler(0, PMIX_ERR_PROC_ABORTED_BY_SIG, &dead, info, 2, NULL, 0, done, "own");
    return NULL;
}

pmix_status_t PMIx_Register_event_handler(pmix_status_t codes[], size_t count,
                                          pmix_info_t info[], size_t infos,
                                          pmix_notification_fn_t call,
                                          pmix_hdlr_reg_cbfunc_t registered, void *data)
{
    pthread_t thread;

    (void)info, (void)infos;
    registered(PMIX_SUCCESS, 0, data);
    /* There is no launcher that could be lost: who waits for that hears of no death. */
    if (count == 1 && codes[0] == PMIX_ERR_LOST_CONNECTION)
        return PMIX_SUCCESS;
    handler = call;
    pthread_create(&thread, NULL, watch, NULL);
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Abort(int status, const char text[], pmix_proc_t procs[], size_t count)
{
    (void)status, (void)text, (void)procs, (void)count;
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Finalize(const pmix_info_t info[], size_t infos)
{
    (void)info, (void)infos;
    return PMIX_SUCCESS;
}
