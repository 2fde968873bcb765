/* gate_options.c - which heads are switched off, or turned down. */
#include "gate_options.h"

#include "command.h"

static hl_status close_listed(hl_gates *gates, const hl_model *model, const char *text)
{
    hl_head_list *heads  = NULL;
    hl_status     status = hl_head_list_parse(&heads, model, text);

    if (status == HL_OK)
        hl_gates_set(gates, heads, 0.0f);
    hl_head_list_free(heads);
    return status;
}

/* A head that is off is computed all the same: nobody should think that it is not. */
static void report(const hl_gates *gates, const char *command)
{
    int64_t n_changed = hl_gates_n_changed(gates);
    int64_t n_off     = 0;

    for (int64_t i = 0; i < gates->n_layers * gates->n_heads; i++)
        n_off += gates->values[i] == 0.0f;
    hl_complain(command, "%lld head%s off, %lld turned down; a closed gate alone saves no time",
                (long long)n_off, n_off == 1 ? "" : "s", (long long)(n_changed - n_off));
}

hl_status hl_gate_options_apply(hl_model *model, const hl_gate_arguments *arguments,
                                const char *command, bool quiet)
{
    hl_gates *gates  = NULL;
    hl_status status = HL_OK;

    if (arguments->path == NULL && arguments->off == NULL)
        return HL_OK;
    if (arguments->path != NULL)
        status = hl_gates_load(&gates, model, arguments->path);
    else
        status = hl_gates_new(&gates, model);
    if (status == HL_OK && arguments->off != NULL)
        status = close_listed(gates, model, arguments->off);
    if (status == HL_OK)
        status = hl_model_set_gates(model, gates->values);
    if (status == HL_OK && !quiet)
        report(gates, command);
    hl_gates_free(gates);
    return status;
}
