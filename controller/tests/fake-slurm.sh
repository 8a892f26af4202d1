#!/bin/sh
# Stands in for one of Slurm's programs: a link to it has the program's name, and files beside the link say what it answers.
# NAME.says is printed, NAME.refuses is printed as an error, and NAME.calls gets a line for each call. Without an answer
# `sbatch` gives out numbers from 501.
folder=$(dirname "$0")
name=$(basename "$0")
echo "$*" >>"$folder/$name.calls"
if [ "$name" = sbatch ]; then cat >"$folder/sbatch.script"; fi
if [ -e "$folder/$name.refuses" ]; then
    cat "$folder/$name.refuses" >&2
    exit 1
fi
if [ -e "$folder/$name.says" ]; then
    cat "$folder/$name.says"
elif [ "$name" = sbatch ]; then
    echo $((500 + $(wc -l <"$folder/sbatch.calls")))
fi
