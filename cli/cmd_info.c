/* cmd_info.c - headlight info: what a model file is. */
#include "command.h"
#include "headlight.h"
#include "info_print.h"
#include "options.h"

int hl_command_info(int argc, char **argv)
{
    bool         tensors = false;
    hl_model    *model   = NULL;
    hl_common    common;
    hl_arguments rest;

    hl_option options[] = {
        { "tensors", 't', HL_OPTION_FLAG, &tensors, NULL, "list every tensor", 0, 0 },
        { 0 },
    };
    hl_usage usage = { "info", "MODEL",
                       "Says what a model is: family, shape, parameters, how its tensors are\n"
                       "stored, and the memory that running it takes.  MODEL is a Hugging Face\n"
                       "folder or a .safetensors file in it, a .gguf file, or a llama2.c .bin.",
                       options };

    int code = hl_options_parse(&rest, &common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (rest.count != 1)
        return hl_options_refuse(&usage, "wanted one MODEL, got %d", rest.count);

    hl_status status = hl_model_open(&model, rest.items[0]);
    if (status != HL_OK) {
        hl_complain("info", "%s", hl_error_message());
        return hl_exit_for(status);
    }
    if (common.json)
        hl_info_print_json(model, rest.items[0], tensors);
    else if (!common.quiet)
        hl_info_print(model, rest.items[0], tensors);
    hl_model_close(model);
    return HL_EXIT_OK;
}
