# The built-in model as F32 and back to Q8_0 is the same file; as Q8_0 it tells the same story.
model=$ROOT/models/storyteller.gguf
cellar quantize "$model" full.gguf F32 -t 2
cellar quantize full.gguf back.gguf q8_0
cmp "$model" back.gguf && echo 'the same file'
cellar run -m full.gguf -q --temp 0 -n 40 -p 'Once upon a time' >full
cellar run -m back.gguf -q --temp 0 -n 40 -p 'Once upon a time' >back
cmp full back && echo 'the same story'
ls
