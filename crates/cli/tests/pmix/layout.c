/* Prints what the installed headers of PMIx declare, for the test to compare. */
#include <pmix.h>
#include <stddef.h>
#include <stdio.h>

#define NUMBER(name, value) printf("%s %lld\n", name, (long long)(value))
#define TEXT(text) printf(#text " %s\n", text)

/* Does not compile where a function has other arguments or another result. */
static const char *(*version)(void) = PMIx_Get_version;
static const char *(*error_string)(int) = PMIx_Error_string;
static int (*init)(pmix_proc_t *, pmix_info_t *, size_t) = PMIx_Init;
static int (*put)(uint8_t, const char *, pmix_value_t *) = PMIx_Put;
static int (*commit)(void) = PMIx_Commit;
static int (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t) = PMIx_Fence;
static int (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t,
                  pmix_value_t **) = PMIx_Get;
static int (*register_handler)(int *, size_t, pmix_info_t *, size_t, pmix_notification_fn_t,
                               pmix_hdlr_reg_cbfunc_t, void *) = PMIx_Register_event_handler;
static int (*abort_job)(int, const char *, pmix_proc_t *, size_t) = PMIx_Abort;
static int (*finalize)(const pmix_info_t *, size_t) = PMIx_Finalize;

static void done(int status, pmix_info_t *results, size_t count, void (*released)(int, void *),
                 void *released_data, void *data)
{
    (void)status, (void)results, (void)count, (void)released, (void)released_data, (void)data;
}

static void heard(size_t id, int status, const pmix_proc_t *source, pmix_info_t *info,
                  size_t count, pmix_info_t *results, size_t results_count,
                  pmix_event_notification_cbfunc_fn_t call, void *data)
{
    (void)id, (void)status, (void)source, (void)info, (void)count, (void)results;
    (void)results_count, (void)call, (void)data;
}

static void registered(int status, size_t id, void *data)
{
    (void)status, (void)id, (void)data;
}

int main(void)
{
    pmix_event_notification_cbfunc_fn_t is_done = done;
    pmix_notification_fn_t is_heard = heard;
    pmix_hdlr_reg_cbfunc_t is_registered = registered;

    (void)version, (void)error_string, (void)init, (void)put, (void)commit, (void)fence;
    (void)get, (void)register_handler, (void)abort_job, (void)finalize;
    (void)is_done, (void)is_heard, (void)is_registered;
    NUMBER("proc", sizeof(pmix_proc_t));
    NUMBER("proc.rank", offsetof(pmix_proc_t, rank));
    NUMBER("value", sizeof(pmix_value_t));
    NUMBER("value.kind bytes", sizeof(((pmix_value_t *)0)->type));
    NUMBER("value.data", offsetof(pmix_value_t, data));
    NUMBER("value.data.string", offsetof(pmix_value_t, data.string));
    NUMBER("value.data.proc", offsetof(pmix_value_t, data.proc));
    NUMBER("info", sizeof(pmix_info_t));
    NUMBER("info.flags", offsetof(pmix_info_t, flags));
    NUMBER("info.value", offsetof(pmix_info_t, value));
    NUMBER("PMIX_RANK_WILDCARD", (uint32_t)(PMIX_RANK_WILDCARD));
    NUMBER("PMIX_GLOBAL", PMIX_GLOBAL);
    NUMBER("PMIX_SUCCESS", PMIX_SUCCESS);
    NUMBER("PMIX_ERR_TYPE_MISMATCH", PMIX_ERR_TYPE_MISMATCH);
    NUMBER("PMIX_ERR_PROC_TERM_WO_SYNC", PMIX_ERR_PROC_TERM_WO_SYNC);
    NUMBER("PMIX_ERR_PROC_KILLED_BY_CMD", PMIX_ERR_PROC_KILLED_BY_CMD);
    NUMBER("PMIX_ERR_PROC_ABORTED_BY_SIG", PMIX_ERR_PROC_ABORTED_BY_SIG);
    NUMBER("PMIX_EVENT_ACTION_COMPLETE", PMIX_EVENT_ACTION_COMPLETE);
    NUMBER("PMIX_BOOL", PMIX_BOOL);
    NUMBER("PMIX_STRING", PMIX_STRING);
    NUMBER("PMIX_UINT32", PMIX_UINT32);
    NUMBER("PMIX_PROC", PMIX_PROC);
    TEXT(PMIX_JOB_SIZE);
    TEXT(PMIX_COLLECT_DATA);
    TEXT(PMIX_EVENT_AFFECTED_PROC);
    return 0;
}
